"""The ids of ale_py's Atari games, which end by their own number of frames.

The rest of ale_py's games are its own environments, in pools.
"""

from jaxenvs.registry import register

_GAMES = """
alien amidar assault asterix asteroids atlantis bank_heist battle_zone beam_rider berzerk
bowling boxing breakout centipede chopper_command crazy_climber defender demon_attack
double_dunk enduro fishing_derby freeway frostbite gopher gravitar hero ice_hockey jamesbond
kangaroo krull kung_fu_master montezuma_revenge ms_pacman name_this_game phoenix pitfall pong
private_eye qbert riverraid road_runner robotank seaquest skiing solaris space_invaders
star_gunner surround tennis time_pilot tutankham up_n_down venture video_pinball wizard_of_wor
yars_revenge zaxxon adventure air_raid atlantis2 basic_math blackjack carnival casino crossbow
darkchambers donkey_kong earthworld elevator_action entombed et flag_capture frogger galaxian
hangman haunted_house human_cannonball journey_escape kaboom keystone_kapers king_kong klax
koolaid laser_gates lost_luggage mario_bros mr_do othello pacman pooyan sir_lancelot
space_war superman tetris tic_tac_toe_3d trondead turmoil video_checkers video_chess
video_cube word_zapper
"""

for _game in _GAMES.split():
    register(
        f"ALE/{_game.replace('_', ' ').title().replace(' ', '')}-v5",
        "jaxenvs.envs.atari:Atari",
        family="atari",
        source="M. G. Bellemare et al., The Arcade Learning Environment, 2013",
        compared_with="ale_py",
        kwargs={"game": _game},
    )

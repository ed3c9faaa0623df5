"""The ids and the interfaces of other libraries: gym, dm_env, PettingZoo, EnvPool ..."""

"""The first signal as a wish to stop: what happens to handlers before it and after it."""

import signal
import threading

import pytest

from jaxenvs.training.signals import StopRequest


@pytest.fixture(autouse=True)
def heard():
    """The signals that those before got; theirs are the handlers that are put back."""
    numbers = []
    handlers = [lambda number, frame: numbers.append(number) for _ in range(2)]
    both = signal.SIGINT, signal.SIGTERM
    before = [signal.signal(*each) for each in zip(both, handlers, strict=True)]
    yield numbers
    now = [signal.getsignal(number) for number in both]
    for each in zip(both, before, strict=True):
        signal.signal(*each)
    assert now == handlers


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stop_request_notes_first_signal_and_passes_on_second(heard, number):
    told = []
    first = StopRequest(told.append)
    assert first.received is None
    signal.raise_signal(number)
    assert first.received == number and told == [number] and heard == []
    signal.raise_signal(number)
    assert told == [number] and heard == [number]
    first.cancel()


def test_stop_requests_canceled_in_order_restore_the_handlers(heard):
    one, two, three = StopRequest(), StopRequest(), StopRequest()
    one.cancel()
    two.cancel()
    signal.raise_signal(signal.SIGINT)
    assert (one.received, two.received, three.received) == (
        None,
        None,
        signal.SIGINT,
    ) and heard == []


def test_later_signal_handler_survives_cancel_and_passes_on(heard):
    first = StopRequest()
    passed = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, later := lambda number, frame: passed(number, frame))
    first.cancel()
    assert signal.getsignal(signal.SIGINT) is later
    signal.raise_signal(signal.SIGINT)
    assert first.received is None and heard == [signal.SIGINT]
    StopRequest().cancel()
    assert signal.getsignal(signal.SIGINT) is later
    signal.signal(signal.SIGINT, first._before[signal.SIGINT])


def test_stop_request_canceled_in_another_thread_passes_on(heard):
    first = StopRequest()
    thread = threading.Thread(target=first.cancel)
    thread.start()
    thread.join()
    signal.raise_signal(signal.SIGTERM)
    assert first.received is None and heard == [signal.SIGTERM]
    StopRequest().cancel()  # puts back what is not over


def test_stop_request_outside_the_main_thread_takes_no_signal(heard):
    made = []
    thread = threading.Thread(target=lambda: made.append(StopRequest()))
    thread.start()
    thread.join()
    signal.raise_signal(signal.SIGINT)
    assert made[0].received is None and heard == [signal.SIGINT]
    made[0].cancel()

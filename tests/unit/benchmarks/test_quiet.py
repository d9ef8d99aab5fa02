from benchmarks.quiet import Calm, busy_percent, wait_until_quiet


def test_two_quiet_seconds_in_a_row_are_waited_for():
    samples = iter([90.0, 5.0, 40.0, 3.0, 4.0, 99.0])
    assert wait_until_quiet(lambda: next(samples)) == Calm(
        is_quiet=True, busy_percent=4.0, waited_s=5
    )


def test_it_gives_up_and_tells_the_load():
    calm = wait_until_quiet(lambda: 70.0, samples_max=3)
    assert calm == Calm(is_quiet=False, busy_percent=70.0, waited_s=3)
    assert str(calm) == "machine NOT QUIET: 70 % busy after 3 s"


def test_a_sample_is_a_percentage():
    assert 0 <= busy_percent() <= 100

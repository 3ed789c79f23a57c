"""What a run's history says of its progress and the time of its updates."""

from fairseq_plugins.train import history


def reports(*lines):
    """Reports, each an update with its seconds, or the update of a start."""
    return [
        {"resumed": line} if isinstance(line, int) else dict(zip(("update", "seconds"), line))
        for line in lines
    ]


def read(folder, lines, warm_up=15):
    for line in lines:
        history.add(folder, **line)
    return history.read(folder, warm_up)


def test_what_a_killed_training_did_after_its_checkpoint_does_not_count(tmp_path):
    dead = reports(0, (10, 9.0), (20, 9.0), (30, 9.0))
    valid = {"update": 20, "subset": "valid", "stats": {"bleu": 1.0}}
    found = read(tmp_path, [*dead, valid, *reports(0, (10, 1.0), (20, 2.0), (30, 4.0))])
    assert found == (30, 3.0, [], [])
    # resumed from update 20: the warm-up begins again
    found = read(tmp_path, reports(20, (30, 7.0), (40, 5.0)))
    assert found.updates == 40 and found.seconds == 3.5


def test_of_several_validation_subsets_the_first_counts_and_a_torn_line_does_not(tmp_path):
    lines = [
        {"update": 20, "seconds": None},
        {"update": 20, "subset": "valid", "stats": {"bleu": 30.0}},
        {"update": 20, "subset": "test", "stats": {"bleu": 31.0}},
    ]
    read(tmp_path, lines)
    with open(tmp_path / history.NAME, "a") as file:
        file.write('{"update": 9')
    assert history.read(tmp_path) == (20, None, [], [{"bleu": 30.0, "hours": 0.0, "update": 20}])


def test_curves_have_losses_and_hours_of_what_counts(tmp_path):
    def trained(update, loss, hours):
        return {"update": update, "stats": {"nll_loss": loss}, "hours": hours}

    valid = {"update": 20, "subset": "valid", "stats": {"bleu": 30.0}, "hours": 0.5}
    lines = [trained(10, 9.0, 0.1), trained(20, 8.0, 0.2), valid, trained(30, 7.0, 0.3)]
    for line in [*lines, {"resumed": 20}, trained(30, 6.0, 0.6)]:
        history.add(tmp_path, **line)
    found = history.read(tmp_path)
    assert [tuple(each.values()) for each in found.train] == [
        (9.0, 0.1, 10), (8.0, 0.2, 20), (6.0, 0.6, 30),
    ]  # fmt: skip
    assert found.valid == [{"bleu": 30.0, "hours": 0.5, "update": 20}]

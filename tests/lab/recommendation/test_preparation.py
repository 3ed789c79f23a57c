"""MIND's files arrive whole in the prepared folder; bad lines are named and counted."""

from fairseq.data import Dictionary, data_utils

from fairseq_plugins.lab.recommendation.impressions import Impressions
from tests.lab import made_up_news


def read(folder):
    """The title of each news by its ID, and (split, history, {shown: clicked}) of impressions."""
    dictionary = Dictionary.load(str(folder / "input0/dict.txt"))
    titles, names = {}, []
    for part in ("train", "test"):
        rows = data_utils.load_indexed_dataset(str(folder / "input0" / part), dictionary)
        ids = (folder / f"text/titles/{part}.id").read_text().split()
        assert len(ids) == len(rows)
        titles.update({name: dictionary.string(rows[n]) for n, name in enumerate(ids)})
        names += ids
    found = []
    for split in ("train", "valid", "test"):
        rows = data_utils.load_indexed_dataset(str(folder / "impressions" / split))
        for row in (rows[n].tolist() for n in range(len(rows))):
            history = [names[n] for n in row[1 : 1 + row[0]]]
            shown = {names[code // 2]: code % 2 for code in row[1 + row[0] :]}
            found.append((split, history, shown))
    return titles, found


def test_titles_and_impressions_arrive(tmp_path):
    made_up_news.write(tmp_path)
    titles, found = read(made_up_news.prepare(tmp_path))
    expected = {}
    for part in ("dev", "train"):  # of news in both, those of train count
        for line in (tmp_path / part / "news.tsv").read_text().splitlines():
            name, _, _, title, *_ = line.split("\t")
            expected[name] = title.lower().replace("!", " !")
    for name, title in titles.items():
        pairs = zip(title.split(), expected[name].split())
        assert all(one in (other, "<unk>") for one, other in pairs), name
    assert set(titles) == set(expected)

    wanted = []
    for part in ("train", "dev"):
        text = (tmp_path / part / "behaviors.tsv").read_text()
        for number, line in enumerate(text.splitlines(), 1):
            _, _, _, history, shown = line.split("\t")
            marks = {word[:-2]: int(word[-1]) for word in shown.split()}
            if part == "train" and number % 5:  # one for each click, with what was not clicked
                others = {name: 0 for name, mark in marks.items() if not mark}
                for name in (name for name, mark in marks.items() if mark):
                    wanted.append(("train", history.split(), {name: 1, **others}))
            else:
                wanted.append(("test" if part == "dev" else "valid", history.split(), marks))
    key = str
    assert sorted(found, key=key) == sorted(wanted, key=key)
    report = (tmp_path / "data/report.txt").read_text()
    assert (
        "30 news in train, and 7 more in test." in report and "No line was filtered out" in report
    )


BAD = {
    "9\tU1\ttime\tN0": "not 5 columns: 4",
    "9\tU1\ttime\tN0\tN1-0 N2-0": "no click",
    "9\tU1\ttime\tN0\tN1-1": "no news without a click",
    "9\tU1\ttime\tN0\tN1 N2": "no label, -0 or -1: N1",
    "9\tU1\ttime\tN0\t": "no click",
    "9\tU1\ttime\tN0 N77\tN1-0 N2-1": "not in news.tsv: N77",
}


def test_bad_lines_are_named_and_counted(tmp_path):
    made_up_news.write(tmp_path)
    path = tmp_path / "train/behaviors.tsv"
    path.write_text(path.read_text() + "\n".join(BAD) + "\n")
    with (tmp_path / "dev/news.tsv").open("a") as file:
        file.write("N99\tsports\n")
    folder = made_up_news.prepare(tmp_path)
    removed = (folder / "removed.txt").read_text().splitlines()
    first = made_up_news.SIZES["train"] + 1
    splits = ["valid" if (first + n) % 5 == 0 else "train" for n in range(len(BAD))]
    assert removed == ["test\tnews.tsv:13\tnot 8 columns: 2"] + [
        f"{split}\tbehaviors.tsv:{first + n}\t{problem}"
        for n, (split, problem) in enumerate(zip(splits, BAD.values()))
    ]
    report = (folder / "report.txt").read_text()
    assert "Filtered out: 7 lines, which removed.txt" in report and "2  no click" in report


class Rows(list):
    sizes = [9, 6]


def test_negatives_change_with_the_epoch_and_repeat_where_there_are_few():
    import torch

    from fairseq_plugins.lab.recommendation.impressions import pack

    rows = Rows(
        torch.tensor(pack(*each))
        for each in (
            ([5, 6, 7], [9, 10, 11, 12, 13], [True, False, False, False, False]),
            ([], [3, 4], [True, False]),
        )
    )
    titles = [torch.arange(4, 5 + n % 3) for n in range(20)]
    data = Impressions(rows, titles, 1, 2, 3, seed=1)
    seen = set()
    for epoch in range(1, 12):
        data.set_epoch(epoch)
        sample = data[0]
        assert sample["history"].tolist() == [6, 7]  # the latest
        candidates = sample["candidates"].tolist()
        assert candidates[0] == 9 and len(set(candidates)) == 4
        assert sample["clicked"].tolist() == [True, False, False, False]
        assert data[0]["candidates"].tolist() == candidates
        seen.add(tuple(candidates))
        assert data[1]["candidates"].tolist() == [3, 4, 4, 4]
    assert len(seen) > 5
    batch = data.collater([data[0], data[1]])
    inputs = batch["net_input"]
    assert inputs["history"].tolist()[1] == [-1, -1]
    found = [[inputs["titles"][n] for n in row if n >= 0] for row in inputs["candidates"].tolist()]
    for row, sample in zip(found, (data[0], data[1])):
        for title, news in zip(row, sample["candidates"].tolist()):
            assert title[title != 1].tolist() == titles[news].tolist()
    assert batch["target"].tolist() == [[True, False, False, False]] * 2

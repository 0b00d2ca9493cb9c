"""What prepare made is no input: a run over a folder with earlier results reads the user's data alone."""

import json
import tarfile
from pathlib import Path

import pytest

from paddle_cluster.prepare.program import main

EXAMPLES = Path(__file__).parents[3] / "examples"
ROWS = "a,b\n" + "".join(f"{number},{number % 2}\n" for number in range(1000))


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "table.csv").write_text(ROWS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*flags, source="csv"):
    return main([f"--data_source={source}", "--split_count=1", f"--examples_dir={EXAMPLES}", *flags])


def counts(job):
    facts = json.loads((job / "prepared.json").read_text())
    return facts["training"], facts["test"]


def test_a_second_run_reads_nothing_of_the_first(here, capsys):
    for out in ("job", "job", "./job/", "job"):
        assert run("--data_path=.", f"--out_dir={out}") == 0
        assert counts(here / "job") == (900, 100)
    told = [line for line in capsys.readouterr().err.splitlines() if "not read" in line]
    assert told == ["prepare: .: directories that prepare made are not read: job (OUT_DIR)"] * 4


def test_a_run_that_was_killed_before_its_marker_is_not_read_either(here):
    assert run("--data_path=.", "--out_dir=job") == 0
    (here / "job/prepared.json").unlink()
    assert run("--data_path=.", "--out_dir=job") == 0
    assert counts(here / "job") == (900, 100)


def test_out_dir_is_known_by_a_link_too(here):
    (here / "jobs").mkdir()
    (here / "elsewhere").symlink_to("jobs")
    for _ in range(2):
        assert run("--data_path=.", "--out_dir=elsewhere/job") == 0
        assert counts(here / "jobs/job") == (900, 100)


def test_the_results_of_other_jobs_are_named_once_and_not_read(here, capsys):
    for number in range(7):
        assert run("--data_path=table.csv", f"--out_dir=jobs/{number}") == 0
    capsys.readouterr()
    assert run("--data_path=.", "--out_dir=job") == 0
    assert counts(here / "job") == (900, 100)
    (told,) = [line for line in capsys.readouterr().err.splitlines() if "not read" in line]
    assert "job (OUT_DIR), jobs/0 (it has a prepared.json)" in told
    assert told.endswith(" and 3 more")


def test_text_is_not_mixed_with_results(here):
    (here / "raw").mkdir()
    for count in (50, 100):
        (here / "raw/films.txt").write_text("".join(f"{n % 2}\tword{n} fine film\n" for n in range(count)))
        assert run("--data_path=.", "--out_dir=job", "--min_count=1", source="quick_start") == 0
        assert counts(here / "job") == (count * 4 // 5, count // 5)


def test_ratings_are_not_mixed_with_results(here):
    """The walk takes the nearest folder with a ratings.dat, which a job's config directory may hold."""
    job = here / "a-job"
    job.mkdir()
    (job / "prepared.json").write_text("{}")
    (job / "ratings.dat").write_text("1::1::5::0\n")
    (here / "z").mkdir()
    (here / "z/ratings.dat").write_text("".join(f"{1 + n % 2}::1::{1 + n % 5}::0\n" for n in range(20)))
    (here / "z/users.dat").write_text("1::F::1::10::48067\n2::M::25::16::70072\n")
    (here / "z/movies.dat").write_text("1::Toy Story (1995)::Comedy\n")
    assert run("--data_path=.", "--out_dir=job", source="movielens") == 0
    assert counts(here / "job") == (18, 2)


@pytest.mark.parametrize("path", ["job", ".", "job/0/data", "job/0/data/train.csv", "job/new", "link"])
def test_input_inside_out_dir_is_refused_before_anything_is_touched(here, capsys, path):
    assert run("--data_path=table.csv", "--out_dir=job") == 0
    (here / "link").symlink_to("job/0")
    out = "." if path == "." else "job"
    before = sorted(here.rglob("*"))
    capsys.readouterr()
    assert run(f"--data_path={path}", f"--out_dir={out}") == 78
    assert f"DATA_PATH {path} lies in OUT_DIR {here if out == '.' else here / out}, so" in capsys.readouterr().err
    assert run(f"--data_url=file://{here / path}", f"--out_dir={out}") == 78
    assert "DATA_URL " in capsys.readouterr().err
    assert sorted(here.rglob("*")) == before


def test_a_job_directory_as_input_of_another_is_refused_and_its_shard_is_read(here, capsys):
    assert run("--data_path=table.csv", "--out_dir=one") == 0
    assert run("--data_path=one", "--out_dir=two") == 65
    assert "one has a prepared.json, so prepare made this directory" in capsys.readouterr().err
    assert run("--data_path=one/0/data", "--out_dir=two") == 0
    assert counts(here / "two") == (900, 100)


def test_results_in_an_archive_are_not_read(here, capsys):
    assert run("--data_path=table.csv", "--out_dir=old") == 0
    with tarfile.open(here / "all.tar", "w") as archive:
        archive.add("table.csv")
        archive.add("old")
    assert run("--data_path=all.tar", "--out_dir=job") == 0
    assert counts(here / "job") == (900, 100)
    assert "tar: directories that prepare made are not read: old (it has a prepared.json)" in capsys.readouterr().err


def test_a_loop_of_links_as_out_dir_is_an_error_and_no_traceback(here, capsys):
    (here / "loop").symlink_to("loop")
    assert run("--data_path=.", "--out_dir=loop/job") == 74
    assert "Traceback" not in capsys.readouterr().err

"""What shells are told: commands, options, tables of `lakelatch.toml`, keys behind `-o`, and values of those."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lakelatch.console.main import main


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("lakelatch ti", ["timeline"]),
        ("lakelatch cancel r", ["request"]),
        ("lakelatch timeline t --li", ["--limit"]),
        ("lakelatch cluster t --layout h", ["hilbert"]),
        ("lakelatch torture --provider redis,et", ["redis,etcd"]),
        ("lakelatch locks migrate t --to et", ["etcd"]),
        ("lakelatch compact -o hoodie.write.lock.prov", ["hoodie.write.lock.provider="]),
        ("lakelatch compact -o hoodie.write.lock.provider=et", ["hoodie.write.lock.provider=etcd"]),
        ("lakelatch locks -o hoodie.clean.automatic=", ["hoodie.clean.automatic=true", "hoodie.clean.automatic=false"]),
        ("lakelatch locks fl", ["", "flights"]),
        ("lakelatch locks ", ["", "flights", "trips", "show", "break", "migrate", "record"]),
        ("lakelatch service run flights tr", ["", "trips"]),
        ("lakelatch completion z", ["zsh"]),
    ],
)
def test_fish_is_told(
    line: str, told: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lakelatch.toml").write_text('[tables]\nflights.path = "f"\ntrips.path = "t"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", line.rpartition(" ")[2])
    monkeypatch.setenv("_LAKELATCH_COMPLETE", "fish_complete")
    assert main([]) == 0
    lines = [entry for entry in capsys.readouterr().out.splitlines() if entry]
    found = [one.removeprefix("plain,").partition("\t")[0] for one in lines if one.startswith("plain,")]
    assert found == [one for one in told if one]
    assert any(one.startswith("dir,") for one in lines) == ("" in told), "folders are offered where a table is named"


def test_bash_completes_behind_the_equals_sign_at_which_it_parts_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", "bash"]) == 0
    script = f"""
compopt() {{ :; }}
env() {{ command env "${{@:1:$#-1}}" {sys.executable} -m lakelatch; }}
{capsys.readouterr().out}
COMP_WORDS=(lakelatch locks -o hoodie.write.lock.provider = zoo); COMP_CWORD=5; COMPREPLY=()
_lakelatch_completion lakelatch; echo "${{COMPREPLY[*]}}"
"""
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("zookeeper\n", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_LAKELATCH_COMPLETE={shell}_complete" in script
    assert main(["completion", "cmd"]) == 2

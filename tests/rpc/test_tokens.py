"""Signed tokens: what they say, how they are refused, and how a run's secret is replaced while it trains."""

import base64
import json
import os
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.errors import ConfigError, PermissionDenied, TryAgain, Unauthenticated
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.folder.run_tokens import made, replace_secret
from paceline.rpc.auth import Credentials, Held, SignedTokens, authentication, bearer, held, read_credentials
from paceline.rpc.roles import Caller
from paceline.rpc.token_file import OVERLAP, Secret, Token, content_of, new_secret, run_secret, write_token_file
from paceline.rpc.tokens import UNREAD, Claims, private_key, public_key, sign
from tests.support.own_time import Clock

SECRET, OTHER = "the-secret-of-this-run", "the-secret-of-another-run"
THIRD = "yet-another-secret-of-this-test-0123456789"
DAY = 86400.0


def token(secret: str = SECRET, at: float | None = None, **claims: Any) -> str:
    """A header with a token, as `secret` signs it."""
    now = time.time() if at is None else at
    facts = {"run": "demo", "role": "worker", "name": "worker-1", "made": now, "until": now + DAY}
    return bearer(sign(secret, Claims(**(facts | claims))))


def checked(shown: str, method: str = "Heartbeat", **own: Any) -> Caller:
    return authentication(Credentials(SECRET, **own)).check(shown, method)


def test_a_token_names_its_bearer() -> None:
    caller = checked(token())
    assert (caller.role, caller.name) == ("worker", "worker-1")
    assert (caller.claims.run, caller.key) == ("demo", public_key(SECRET))


def test_the_secret_never_travels_and_is_no_token() -> None:
    shown = held(Credentials(SECRET)).shown()
    assert SECRET not in shown
    assert checked(shown, "Stop").role == "admin"
    with pytest.raises(Unauthenticated, match="nobody has signed"):
        checked(bearer(SECRET))


@pytest.mark.parametrize(
    ("shown", "own", "error", "told"),
    [
        ("", {}, Unauthenticated, "carries no token. Give the process's token file with --token-file"),
        (token(OTHER), {}, Unauthenticated, "of another run, or of an older secret: it is for worker-1 of run demo"),
        (token(at=time.time() - 2 * DAY), {}, Unauthenticated, r"worker-1 expired 2.* this server's clock says"),
        (token(), {"run": "b"}, PermissionDenied, "for run 'demo', this is run 'b'. Make one for this run"),
        (token(role="king"), {}, PermissionDenied, "'king'; there are worker, evaluator, server, reader, admin"),
        (token(role="reader"), {}, PermissionDenied, r"Heartbeat is not for the token of worker-1 \(reader\)"),
        ("Bearer ey.a.b", {}, Unauthenticated, "can't be read: .*Give the whole file"),
        ("Bearer ", {}, Unauthenticated, "nobody has signed"),
    ],
    ids=["none", "wrong run", "expired", "same secret, other run", "no role", "wrong role", "cut", "empty"],
)
def test_a_wrong_token_is_refused_with_the_fix(
    shown: str, own: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        checked(shown, **own)


@pytest.mark.parametrize("hours", [1, 24])
def test_a_token_stays_good_where_the_clock_is_set_back_after_it_was_made(hours: float) -> None:
    assert checked(token(at=time.time() + hours * 3600)).role == "worker"


def test_a_token_without_a_signature_or_signed_with_the_public_key_is_refused() -> None:
    said = {"run": "demo", "role": "admin", "sub": "", "iat": 0, "exp": 1 << 40}
    plain = base64.urlsafe_b64encode(json.dumps({"alg": "none", "typ": "JWT"}).encode()).decode().rstrip("=")
    body = base64.urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")
    for forged in (f"{plain}.{body}.", jwt.encode(said, public_key(SECRET) * 2, algorithm="HS256")):
        with pytest.raises(Unauthenticated):
            checked(bearer(forged), "Stop")


@given(st.data())
def test_a_token_with_another_character_is_refused(data: st.DataObject) -> None:
    head, body, signature = token().split(".")
    place = data.draw(st.integers(0, len(body) - 2), label="place")  # the last one may carry unused bits
    other = data.draw(st.sampled_from("abcXYZ019-_").filter(lambda char: char != body[place]), label="character")
    with pytest.raises(Unauthenticated):
        checked(".".join([head, body[:place] + other + body[place + 1 :], signature]))


def test_a_token_that_lacks_a_claim_is_refused() -> None:
    secret = run_secret(SECRET, "it")
    assert secret.word == SECRET
    lacking = jwt.encode({"run": "", "role": "admin", "sub": "", "iat": 0}, private_key(SECRET), algorithm="EdDSA")
    with pytest.raises(Unauthenticated, match="lacks something: 'exp'"):
        checked(bearer(lacking))


def test_what_a_stranger_writes_into_a_token_breaks_no_log() -> None:
    forged = token(OTHER, name="worker-1\n\x1b[31mall is well" + "x" * 500, until=1e18)
    with pytest.raises(Unauthenticated, match="of another run") as refused:
        checked(forged)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 400
    with pytest.raises(Unauthenticated, match="1e"):
        checked(token(until=-1e18))


def test_an_expiry_ends_a_token_that_was_good_before() -> None:
    clock = Clock(1_790_000_000.0)
    gate = SignedTokens(Credentials("another-secret-of-a-run"), clock)
    shown = token("another-secret-of-a-run", at=clock.now)
    gate.check(shown, "Heartbeat")
    clock.now += DAY + 1
    with pytest.raises(Unauthenticated, match="expired"):
        gate.check(shown, "Heartbeat")


# the file
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty; write a long random word"),
        ("two words\n", "neither a run's secret nor a process's token"),
        (f"{SECRET}\nwas old\n", "neither a run's secret nor a process's token"),
        (token().removeprefix("Bearer "), "holds a token, but no line `key ...` before it"),
        ("key AAAA\ney.a.b\n", "a line that is no public key: 'key AAAA'"),
        (f"key {public_key(SECRET)}\n", "public keys, but no token after them"),
    ],
)
def test_a_file_that_is_no_token_file_is_told_with_the_fix(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(ConfigError, match=told):
        read_credentials(tmp_path / "token", None)


def test_a_token_file_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Can't read the token file .*: No such file"):
        read_credentials(tmp_path / "token", None)


def test_a_secret_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(ConfigError, match="has 6 characters, which can be guessed"):
        authentication(Credentials("secret")).check(token(), "Status")


def test_a_token_file_makes_no_tokens(tmp_path: Path) -> None:
    file = run_secret(SECRET, "it").token_file(Claims("demo", "admin", "", 0, 1), 0)
    (tmp_path / "token").write_text(file)
    with pytest.raises(ConfigError, match="holds no secret of a run, so it makes no tokens"):
        made("demo", tmp_path / "token", "reader", "", DAY)


def test_a_token_file_is_its_owner_s_alone(tmp_path: Path) -> None:
    write_token_file(tmp_path / "token", "a")
    write_token_file(tmp_path / "token", "b")
    assert (tmp_path / "token").read_text() == "b"
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["token"]


# another secret
def test_old_and_new_secret_hold_together_for_a_minute(tmp_path: Path) -> None:
    clock, file = Clock(1_790_000_000.0), tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    gate = SignedTokens(Credentials(file.read_text(), file=file), clock)
    gate._held = Held(Credentials(file.read_text(), file=file), clock)
    old = token(at=clock.now)
    gate.check(old, "Heartbeat")

    write_token_file(file, run_secret(SECRET, "it").replaced(clock.now))
    after = content_of(file.read_text())
    assert isinstance(after, Secret)
    clock.now += 2.0
    new = token(after.word, at=clock.now)

    for shown in (old, new):
        gate.check(shown, "Heartbeat")
    clock.now += OVERLAP
    gate.check(new, "Heartbeat")
    with pytest.raises(Unauthenticated, match="of an older secret"):
        gate.check(old, "Heartbeat")


def test_a_secret_that_another_word_replaces_without_more_holds_until_all_have_new_tokens(tmp_path: Path) -> None:
    clock, file = Clock(1_790_000_000.0), tmp_path / "token"
    file.write_text(SECRET)
    gate = SignedTokens(Credentials(SECRET, file=file), clock)
    gate._held = Held(Credentials(SECRET, file=file), clock)
    old = token(at=clock.now)

    file.write_text(OTHER)
    clock.now += 2.0
    assert gate.check(old, "Heartbeat").key == public_key(SECRET)
    assert gate.check(token(OTHER, at=clock.now), "Heartbeat").key == public_key(OTHER), "of a pod that is new"
    write_token_file(file, OTHER)
    clock.now += 300.0
    renewed = content_of(gate.renewal(gate.check(old, "Heartbeat")))
    assert isinstance(renewed, Token)
    assert gate.check(bearer(renewed.text), "Heartbeat").key == public_key(OTHER)

    clock.now += 300.0
    with pytest.raises(Unauthenticated, match="older secret"):
        gate.check(old, "Heartbeat")


def gate_of(file: Path, clock: Clock, memory: Path | None = None) -> SignedTokens:
    """A server's that has just started."""
    gate = SignedTokens(Credentials(file.read_text(), file=file), clock)
    gate._held = Held(Credentials(file.read_text(), file=file, memory=memory), clock)
    return gate


def test_two_rotations_within_minutes_refuse_nobody_before_the_first_one_is_over(tmp_path: Path) -> None:
    clock, file = Clock(1_790_000_000.0), tmp_path / "token"
    file.write_text(SECRET)
    gate, old = gate_of(file, clock), token(at=clock.now)

    for word in (OTHER, THIRD):
        write_token_file(file, word)
        clock.now += 2.0
        assert gate.check(old, "Heartbeat").key == public_key(SECRET)
        clock.now += 200.0
    renewed = content_of(gate.renewal(gate.check(old, "Heartbeat")))
    assert isinstance(renewed, Token)
    clock.now += 250.0

    assert gate.check(bearer(renewed.text), "Heartbeat").key in {public_key(OTHER), public_key(THIRD)}
    with pytest.raises(Unauthenticated, match="older secret"):
        gate.check(old, "Heartbeat")


@pytest.mark.parametrize("seen", [True, False], ids=["before its end", "after its end"])
def test_a_server_that_starts_again_after_a_rotation_knows_the_key_before(seen: bool, tmp_path: Path) -> None:
    """Whether it saw the newer word before its end or only at its start."""
    clock, file, memory = Clock(1_790_000_000.0), tmp_path / "token", tmp_path / "server-0/public-keys"
    file.write_text(SECRET)
    before, old = gate_of(file, clock, memory), token(at=clock.now)
    write_token_file(file, OTHER)
    clock.now += 100.0
    if seen:
        before.check(old, "Heartbeat")

    after = gate_of(file, clock, memory)

    assert after.renewal(after.check(old, "Heartbeat")) == "", "other servers may not know the new word yet"
    clock.now += 200.0
    renewed = content_of(after.renewal(after.check(old, "Heartbeat")))
    assert isinstance(renewed, Token)
    assert after.check(bearer(renewed.text), "Heartbeat").key == public_key(OTHER)
    assert SECRET not in memory.read_text()
    assert OTHER not in memory.read_text()
    clock.now += 401.0
    for gate in (after, gate_of(file, clock, memory)):
        with pytest.raises(Unauthenticated, match="older secret"):
            gate.check(old, "Heartbeat")


def test_a_token_of_a_secret_that_a_servers_pod_has_yet_to_see_may_come_again(tmp_path: Path) -> None:
    clock, file = Clock(1_790_000_000.0), tmp_path / "token"
    file.write_text(SECRET)
    (tmp_path / "..data").symlink_to(tmp_path)  # as Kubernetes mounts Secrets
    gate, new, older = gate_of(file, clock), token(OTHER, at=clock.now), token(OTHER, at=clock.now - UNREAD - 1)

    with pytest.raises(TryAgain, match="has just been replaced"):
        gate.check(new, "Heartbeat")
    with pytest.raises(Unauthenticated, match="of another run"):
        gate.check(older, "Heartbeat")
    write_token_file(file, OTHER)
    clock.now += 100.0
    assert gate.check(new, "Heartbeat").key == public_key(OTHER)
    clock.now += UNREAD
    with pytest.raises(Unauthenticated, match="of another run"):
        gate.check(token(THIRD, at=clock.now - UNREAD - 1), "Heartbeat")


def test_who_learns_keys_from_the_chief_lets_a_token_of_a_new_secret_come_again_until_it_has_the_key() -> None:
    clock = Clock(1_790_000_000.0)
    secret = content_of(run_secret(SECRET, "it").replaced(clock.now))
    assert isinstance(secret, Secret)
    chief = Held(
        Credentials(f"{secret.word}\nwas {SECRET} from {clock.now:.0f} until {clock.now + OVERLAP:.0f}"), clock
    )
    said = Claims("demo", "reader", "shards", clock.now, clock.now + DAY)
    own = Credentials(run_secret(SECRET, "it").token_file(said, clock.now), learns=True)
    gate = SignedTokens(own, clock)
    gate._held = Held(own, clock)
    new = Held(Credentials(secret.word, name="worker-1", role="worker", run="demo"), clock).shown()

    with pytest.raises(TryAgain, match="has just been replaced"):
        gate.check(new, "Fetch")
    caller = SignedTokens(Credentials(SECRET), clock).check(gate._held.shown(), "Status")
    gate._held.take(chief.renewal(caller))

    assert gate.check(new, "Fetch").name == "worker-1"


def test_a_leaked_secret_is_not_remembered(tmp_path: Path) -> None:
    clock, file, memory = Clock(1_790_000_000.0), tmp_path / "token", tmp_path / "public-keys"
    file.write_text(SECRET)
    gate_of(file, clock, memory)
    old = token(at=clock.now)

    write_token_file(file, run_secret(SECRET, "it").replaced(clock.now, overlap=0.0))
    clock.now += 1.0

    with pytest.raises(Unauthenticated, match="older secret"):
        gate_of(file, clock, memory).check(old, "Heartbeat")


def test_who_shows_a_token_of_the_old_secret_gets_one_of_the_new_once_all_know_its_key(tmp_path: Path) -> None:
    clock, file = Clock(1_790_000_000.0), tmp_path / "token"
    file.write_text(run_secret(SECRET, "it").replaced(clock.now))
    chief = Held(Credentials(file.read_text(), file=file), clock)
    gate = SignedTokens(Credentials(file.read_text()), clock)
    gate._held = chief
    worker = Held(
        Credentials(
            run_secret(SECRET, "it").token_file(
                claims := Claims("demo", "worker", "worker-1", clock.now, clock.now + DAY), clock.now
            )
        ),
        clock,
    )
    old_key = public_key(SECRET)
    assert worker.keys() == (old_key,)

    worker.take(gate.renewal(gate.check(worker.shown(), "Heartbeat")))

    caller = gate.check(worker.shown(), "Heartbeat")
    assert caller.key == old_key, "others may not know the new one yet"
    assert set(worker.keys()) == set(chief.keys()) > {old_key}
    clock.now += OVERLAP / 2
    worker.take(gate.renewal(gate.check(worker.shown(), "Heartbeat")))
    caller = gate.check(worker.shown(), "Heartbeat")
    assert caller.key == chief.keys()[0] != old_key
    assert caller.claims.until == claims.until, "a token for a day stays one for a day"
    assert gate.renewal(caller) == ""


def test_a_worker_makes_no_token_for_others() -> None:
    found = content_of(run_secret(SECRET, "it").token_file(Claims("demo", "worker", "worker-1", 0, 1 << 40), 0))
    assert isinstance(found, Token)
    mine = Held(Credentials(run_secret(SECRET, "it").token_file(Claims("demo", "worker", "worker-1", 0, 1 << 40), 0)))
    assert mine.renewal(checked(token(at=time.time()))) == ""


def test_all_files_of_a_run_get_tokens_of_the_new_secret(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "play")
    folder.token_of("").mkdir(parents=True)
    folder.token.write_text(new_secret())
    before = run_secret(folder.read_secret(), "it")
    folder.token_of("worker-3").write_text("")
    seen = []

    replace_secret(folder, sleep=lambda seconds: seen.append(folder.token_of("worker-3").read_text()))

    first, then = (Credentials(text) for text in (*seen, folder.token_of("worker-3").read_text()))
    gate = authentication(Credentials(folder.read_secret()))
    assert gate.check(held(first).shown(), "Push").key == before.keys[0].text
    assert gate.check(held(then).shown(), "Push").key == run_secret(folder.read_secret(), "it").keys[0].text
    assert len(held(first).keys()) == len(held(then).keys()) == 2
    assert gate.check(held(then).shown(), "Push").name == "worker-3"


def test_at_once_the_old_secret_holds_no_longer(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "play")
    folder.token_of("").mkdir(parents=True)
    folder.token.write_text(f"{SECRET}\n")
    folder.token_of("worker-3").write_text("")
    seen: list[tuple[str, str]] = []

    replace_secret(folder, 0.0, lambda _: seen.append((folder.read_secret(), folder.token_of("worker-3").read_text())))

    # whichever of both files a process has read: what one shows the other takes, and a leaked token gets no new one
    assert len(seen) == 2
    for secret, _ in seen:
        gate = authentication(Credentials(secret))
        for text in [held(Credentials(word)).shown() for _, word in seen] + [token()]:
            caller = gate.check(text, "Heartbeat")
            assert gate.renewal(caller) == ""

    for text in (folder.read_secret(), folder.token_of("worker-3").read_text()):
        with pytest.raises(Unauthenticated, match="of an older secret"):
            authentication(Credentials(text)).check(token(), "Heartbeat")

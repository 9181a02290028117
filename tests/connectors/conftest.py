"""Servers of the connector tests; a test fails, and is not skipped, if its server cannot start."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from riot_ops.testing.services import Mosquitto

PASSWORD = "pässwörd-never-shown"


def write_certificates(folder: Path, days: int = 2, host: str = "localhost") -> Path:
    """Create a certificate authority and a certificate for a host, expired if ``days`` is negative.

    That for localhost is also for its address. ``both.pem`` has the certificate and the key, ``locked.key`` the key
    under the password of the tests.
    """
    folder.mkdir(parents=True, exist_ok=True)
    now = dt.datetime.now(dt.UTC)
    start, end = sorted((now - dt.timedelta(days=3), now + dt.timedelta(days=days)))
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of the tests")])
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    hosts: list[x509.GeneralName] = [x509.DNSName(host)]
    if host == "localhost":
        hosts.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    ca = (
        x509.CertificateBuilder()
        .subject_name(ca_name)
        .issuer_name(ca_name)
        .public_key(ca_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=9))
        .not_valid_after(now + dt.timedelta(days=9))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    server = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(ca_name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    (folder / "ca.crt").write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    (folder / "server.crt").write_bytes(server.public_bytes(serialization.Encoding.PEM))
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    plain = key.private_bytes(*form, serialization.NoEncryption())
    (folder / "server.key").write_bytes(plain)
    (folder / "both.pem").write_bytes(server.public_bytes(serialization.Encoding.PEM) + plain)
    locked = key.private_bytes(*form, serialization.BestAvailableEncryption(PASSWORD.encode()))
    (folder / "locked.key").write_bytes(locked)
    return folder


@pytest.fixture
def short_pauses(monkeypatch):
    """Reduce the pauses of a client after short connections to a tenth."""
    from riot_ops.connectors.mqtt import client

    monkeypatch.setattr(client, "FIRST_PAUSE_S", client.FIRST_PAUSE_S / 10)
    monkeypatch.setattr(client, "MAX_PAUSE_S", client.MAX_PAUSE_S / 10)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory) -> Path:
    """Folder with ``ca.crt``, ``server.crt`` and ``server.key``."""
    return write_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def secured(certificates):
    """A broker with TLS that requires a login of the user ``riot``."""
    with Mosquitto(password=PASSWORD, certificates=certificates) as broker:
        yield broker

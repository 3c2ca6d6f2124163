"""An authority of the tests' own, and a certificate that it has signed for the loopback address."""

import datetime as dt
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """An authority that nobody knows.

    Attributes:
        bundle: PEM file with the authority's own certificate.
        tls: What a server shows that it has signed for.
    """

    def __init__(self, directory: Path) -> None:
        key, served_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        name = _named("an authority of the tests")
        own = _builder(name, name, key).add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        served = _builder(_named("a catalog of the tests"), name, served_key).add_extension(address, critical=False)
        self.bundle = directory / "authority.pem"
        self.bundle.write_bytes(own.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        chain = directory / "server.pem"
        chain.write_bytes(
            served_key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + served.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(chain)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
    )

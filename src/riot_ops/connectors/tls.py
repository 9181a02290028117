"""The TLS context of a client: trusted authorities, and the client's own certificate."""

from __future__ import annotations

import ssl

from riot_ops.core.errors import ConnectorError

__all__ = ["client_context"]


def client_context(ca_file: str | None, certificate: str | None, private_key: str | None) -> ssl.SSLContext:
    """Return the context of a client.

    Parameters
    ----------
    ca_file : str or None
        File with the certificates of trusted authorities; by default those of the system.
    certificate : str or None
        File with the client's certificate (PEM).
    private_key : str or None
        File with its private key; by default that of the certificate.

    Raises
    ------
    ConnectorError
        For a file that cannot be read or used; it names the file.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # a missing file, or one without certificates
        raise ConnectorError(f"the CA file {ca_file} cannot be used: {error} (ca_file must be in PEM)") from None
    if certificate is not None:
        files = f"{certificate} and {private_key}" if private_key else certificate
        try:
            # with a password OpenSSL does not ask for one on the terminal
            context.load_cert_chain(certificate, private_key, lambda: "")
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or "not a certificate"
            raise ConnectorError(
                f"the certificate and key in {files} cannot be used: {reason} (certificate and private_key must be in "
                "PEM and belong together, the key without a passphrase)"
            ) from None
    return context

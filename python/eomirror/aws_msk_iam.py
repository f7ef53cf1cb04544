"""
Tokens for Amazon MSK with IAM, as a token function: ``oauth_cb: eomirror.aws_msk_iam:token``.

Brokers of MSK take a signed request as an OAUTHBEARER token, in place of Java's mechanism ``AWS_MSK_IAM``.  The package
``aws-msk-iam-sasl-signer-python`` signs it with the credentials that boto3 finds; ``pip install 'eomirror[aws]'``
installs it.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from eomirror.errors import ClusterError

__all__ = ["token"]

_OPTIONS = ("region", "profile", "role_arn", "role_session_name")
_SESSION = "eomirror"


def token(config: str) -> tuple[str, float]:
    """
    Returns a token and its expiry time, in seconds since 1970.

    Args:
        config: ``sasl.oauthbearer.config``: words such as ``region=eu-west-1``, ``profile=NAME``, ``role_arn=ARN`` and
            ``role_session_name=NAME``.  Without a region, AWS_REGION or AWS_DEFAULT_REGION applies.

    Raises:
        ClusterError: The signer is not installed, no region is known, or a word has another form.
    """
    options = dict(word.partition("=")[::2] for word in config.split())
    unknown = [name for name in options if name not in _OPTIONS]
    if unknown:
        raise ClusterError(
            f"sasl.oauthbearer.config: {unknown[0][:40]!r} is no option of MSK's IAM",
            fix=f"write one or more of {', '.join(f'{name}=VALUE' for name in _OPTIONS)}",
        )
    region = options.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise ClusterError(
            "no AWS region is known for MSK's IAM",
            fix="write sasl.oauthbearer.config: region=eu-west-1, or set AWS_REGION",
        )
    signer = _signer()
    if "role_arn" in options:
        session = options.get("role_session_name", _SESSION)
        signed, expires_ms = signer.generate_auth_token_from_role_arn(region, options["role_arn"], session)
    elif "profile" in options:
        signed, expires_ms = signer.generate_auth_token_from_profile(region, options["profile"])
    else:
        signed, expires_ms = signer.generate_auth_token(region)
    return signed, expires_ms / 1000


def _signer() -> Any:
    try:
        return importlib.import_module("aws_msk_iam_sasl_signer").MSKAuthTokenProvider
    except ImportError as error:
        raise ClusterError(
            "aws-msk-iam-sasl-signer-python is not installed, which signs logins to MSK with IAM",
            fix="pip install 'eomirror[aws]', for the driver and for Spark's workers",
        ) from error

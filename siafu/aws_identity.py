"""Advice for AWS's errors about credentials and logins, by the name of botocore's exception or the code of a
service's answer. Pure.

In a region that the account has not enabled, its keys are unknown (Account Management reference guide, "Enable or
disable AWS Regions").
"""

from __future__ import annotations

#: Prefixes of AWS's access keys: long-term keys, and keys of a session. Substitutes for AWS must not see such keys.
ACCESS_KEYS = ("AKIA", "ASIA")

_MISSING = "set AWS_PROFILE, run aws configure, or give the machine a role"
_UNKNOWN = "check the keys, the profile, and that the account has this region enabled"
_EXPIRED = "log in again (aws sso login, aws login)"
_UNSIGNED = "check the secret key and this machine's clock"

ADVICE = {
    # botocore's exceptions. Not every boto3 that we allow has all of them.
    "NoCredentialsError": _MISSING,
    "PartialCredentialsError": _MISSING,
    "CredentialRetrievalError": _EXPIRED,
    "TokenRetrievalError": _EXPIRED,
    "SSOError": _EXPIRED,
    "SSOTokenLoadError": _EXPIRED,
    "UnauthorizedSSOTokenError": _EXPIRED,
    "LoginError": _EXPIRED,
    "LoginRefreshRequired": _EXPIRED,
    "LoginTokenLoadError": _EXPIRED,
    # codes of answers
    "AuthFailure": _UNKNOWN,
    "IncompleteSignature": _UNKNOWN,
    "InvalidAccessKeyId": _UNKNOWN,
    "InvalidClientTokenId": _UNKNOWN,
    "MissingAuthenticationTokenException": _UNKNOWN,
    "OptInRequired": _UNKNOWN,
    "UnrecognizedClientException": _UNKNOWN,
    "ExpiredToken": _EXPIRED,
    "ExpiredTokenException": _EXPIRED,
    "InvalidToken": _EXPIRED,
    "InvalidSignatureException": _UNSIGNED,
    "RequestExpired": _UNSIGNED,
    "RequestTimeTooSkewed": _UNSIGNED,
    "SignatureDoesNotMatch": _UNSIGNED,
}

"""Findings of cdk-nag's AwsSolutions rules that we keep, each with its reason. A finding without a reason fails the
synthesis.
"""

from __future__ import annotations

from typing import Any

import aws_cdk as cdk
from constructs import IConstruct


def keep(construct: IConstruct, **reasons: str) -> None:
    """Accepts all findings of a rule here, with the reason: ``IAM5="why"`` is AwsSolutions-IAM5. ``keep_findings``
    accepts single ones."""
    for rule, reason in reasons.items():
        cdk.Validations.of(construct).acknowledge(cdk.Acknowledgment(id=f"AwsSolutions-{rule}", reason=reason))


def keep_findings(construct: IConstruct, rule: str, reason: str, *findings: str) -> None:
    """Accepts single findings of a rule, such as ``Resource::*``; tokens in them are written as in cdk-nag:
    ``<AWS::Region>``."""
    stack = cdk.Stack.of(construct)
    for finding in (_shown(stack.resolve(finding)) for finding in findings):
        cdk.Validations.of(construct).acknowledge(
            cdk.Acknowledgment(id=f"AwsSolutions-{rule}[{finding}]", reason=reason)
        )


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    ((function, argument),) = value.items()
    if function == "Ref":
        return f"<{argument}>"
    if function == "Fn::GetAtt":
        return f"<{'.'.join(argument)}>"
    assert function == "Fn::Join", function
    separator, parts = argument
    return str(separator).join(map(_shown, parts))

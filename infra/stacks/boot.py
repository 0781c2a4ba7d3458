"""The boot script of a server: installs siafu from the bucket, then starts its agent under systemd. Pure: it is text.

The machine reaches only S3: Amazon Linux keeps its packages there, and deploy has put ours into the data bucket. The
C++ kernels are compiled on the machine, for its processor. Errors go to the bucket too (``boot/``), since nobody can
log in to look, and booting is retried every half minute: the bucket may still be empty, say. botocore asks the instance
for its credentials once, for a second, unless the unit says otherwise: one slow answer would end a run. If the kernel
kills a role for its memory, systemd would end the whole unit (systemd.service, OOMPolicy=: "stop" by default): also the
agent, and the coordinator beside parameter server 0, which must report the death and restart the role.
"""

from __future__ import annotations

from infra.deployment import INDEX_TAG, ROLE_TAG

HOME, WORK = "/opt/siafu", "/var/lib/siafu"
#: That Amazon Linux 2023 has packages of (its user guide, "Python in AL2023"); its own, 3.9, is too old for us.
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
#: A run's mesh of connections, its shards' files: more than the 1,024 that a service gets.
MAX_FILES = 65536
#: Endpoints and load balancers drop connections that say nothing for 350 s; the kernel's
#: own first probe comes after 7200.
KEEPALIVE_S = 60

_METADATA = "http://169.254.169.254/latest"

_SCRIPT = """#!/bin/bash
mkdir -p {home} {work}
id siafu &> /dev/null || useradd --system --home-dir {work} --shell /sbin/nologin siafu
chown siafu:siafu {work}
echo net.ipv4.tcp_keepalive_time={keepalive} > /etc/sysctl.d/90-siafu.conf
sysctl --quiet --system

cat > {home}/install.sh << 'END'
set -euo pipefail
dnf install --quiet --assumeyes {python} gcc-c++
aws s3 sync --region {region} --only-show-errors --delete s3://{bucket}/{wheels}/ {home}/wheels
test -f {home}/wheels/siafu.tar.gz
{python} -m venv --clear {home}/venv
pip="{home}/venv/bin/python -m pip install --quiet --no-index --find-links {home}/wheels"
$pip --upgrade setuptools wheel
$pip --requirement {home}/wheels/requirements.txt
SIAFU_ISAS=native $pip --no-deps --no-build-isolation {home}/wheels/siafu.tar.gz
END

cat > /etc/systemd/system/siafu.service << 'END'
[Unit]
Description=siafu, deployment {name}
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
User=siafu
WorkingDirectory={work}
ExecStart={home}/venv/bin/python -m infra.machines.agent --bucket {bucket} --deployment {name} --region {region} \\
  --work {work}
Environment=HOME={work}
Environment=AWS_METADATA_SERVICE_TIMEOUT=5 AWS_METADATA_SERVICE_NUM_ATTEMPTS=5
Restart=always
RestartSec=5
OOMPolicy=continue
LimitNOFILE={max_files}
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths={work}
PrivateTmp=yes

[Install]
WantedBy=multi-user.target
END

token=$(curl --silent --request PUT --header "X-aws-ec2-metadata-token-ttl-seconds: 300" {metadata}/api/token)
tag() {{ curl --silent --header "X-aws-ec2-metadata-token: $token" {metadata}/meta-data/tags/instance/$1; }}
log={bucket}/boot/$(tag {role_tag})-$(tag {index_tag}).log
until bash -x {home}/install.sh > {home}/install.log 2>&1; do
  aws s3 cp --region {region} --only-show-errors {home}/install.log s3://$log
  sleep 30
done
aws s3 cp --region {region} --only-show-errors {home}/install.log s3://$log
systemctl daemon-reload
systemctl enable --now siafu.service
"""


def script(name: str, bucket: str, region: str, wheels: str, python: str) -> str:
    """User data of a server. ``wheels``: prefix in the bucket; ``python``: one of ``PYTHONS``, which they are for."""
    return _SCRIPT.format(
        home=HOME,
        work=WORK,
        python=python,
        keepalive=KEEPALIVE_S,
        max_files=MAX_FILES,
        metadata=_METADATA,
        name=name,
        bucket=bucket,
        region=region,
        wheels=wheels,
        role_tag=ROLE_TAG,
        index_tag=INDEX_TAG,
    )

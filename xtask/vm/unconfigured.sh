#!/bin/sh
# What a node needs of the scripts of Debian's packages, where these cannot run: the packages are of an architecture that
# this machine is not of, and are only unpacked, below $1. systemd would need more.
set -e
cp "$1/usr/share/base-passwd/passwd.master" "$1/etc/passwd"
cp "$1/usr/share/base-passwd/group.master" "$1/etc/group"
printf '127.0.0.1\tlocalhost\n::1\tlocalhost\n' >"$1/etc/hosts"
ln -s ../proc/self/mounts "$1/etc/mtab"
# Folders as unpacked, and links on a node: what runtimes have in /var/run is in /run.
for name in run lock; do
    rmdir "$1/var/$name"
done
ln -s /run "$1/var/run"
ln -s /run/lock "$1/var/lock"
for name in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
    ln -s xtables-nft-multi "$1/usr/sbin/$name"
done

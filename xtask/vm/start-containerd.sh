#!/bin/sh
# start-containerd [cgroupfs|systemd]: returns when the boot's containerd serves, with the two local images in it.
# As the service containerd.service where systemd is PID 1, as a plain daemon elsewhere. Its log: /var/log/containerd.log.
set -e
case ${1:-cgroupfs} in
cgroupfs) systemd_cgroup=false ;;
systemd) systemd_cgroup=true ;;
*) echo "start-containerd: '$1' is neither cgroupfs nor systemd" >&2 && exit 2 ;;
esac

if ! ctr version >/dev/null 2>&1; then
    for module in overlay bridge br_netfilter veth xt_comment xt_conntrack xt_MASQUERADE xt_addrtype; do
        modprobe -q $module || true
    done
    sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1
    sed -i "s/SystemdCgroup = .*/SystemdCgroup = $systemd_cgroup/" /etc/containerd/config-v[23].toml
    rm -f /run/containerd/containerd.sock
    if [ "$(cat /proc/1/comm)" = systemd ]; then
        systemctl start containerd.service
    else
        setsid containerd </dev/null >>/var/log/containerd.log 2>&1 &
    fi
    # A minute: twenty times what the slowest emulation took.
    tries=0
    until [ -S /run/containerd/containerd.sock ] && ctr version >/dev/null 2>&1; do
        tries=$((tries + 1))
        if [ $tries -gt 600 ]; then
            echo "start-containerd: not there after a minute; the end of its log:" >&2
            tail -20 /var/log/containerd.log >&2
            exit 1
        fi
        sleep 0.1
    done
fi

if [ ! -e /var/lib/containerd/vm-imported ]; then
    ctr --namespace k8s.io images import /usr/local/share/vm/images.tar >/dev/null
    touch /var/lib/containerd/vm-imported
fi

#!/bin/sh
# PID 1 of the quick flavor: what a node has mounted, and nothing that takes time.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root

# v1 as systemd lays it out: a hierarchy for each controller, cpu with cpuacct and net_cls with net_prio.
# A controller that this kernel has without v1 files (memory, from 6.12 on) is left out.
mount_v1() {
    mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
    for set in name=systemd cpuset cpu,cpuacct blkio memory devices freezer net_cls,net_prio perf_event hugetlb pids rdma; do
        directory=/sys/fs/cgroup/${set#name=}
        options=$set
        [ "$set" != name=systemd ] || options=none,name=systemd
        mkdir -p "$directory"
        mount -t cgroup -o "$options" cgroup "$directory" 2>/dev/null || { rmdir "$directory" && continue; }
        case $set in *,*) for name in $(echo "$set" | tr , ' '); do ln -s "$set" "/sys/fs/cgroup/$name"; done ;; esac
    done
    # Without this an inherited, empty cpuset refuses every process.
    echo 1 >/sys/fs/cgroup/cpuset/cgroup.clone_children 2>/dev/null
}

mount -t tmpfs -o mode=755 run /run
mount -t tmpfs tmp /tmp
mkdir -p /run/lock /run/netns /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
# udev makes these on a node. runc on 5.10 executes itself by /dev/fd, and fails without.
ln -sfn /proc/self/fd /dev/fd
ln -sfn /proc/self/fd/0 /dev/stdin
ln -sfn /proc/self/fd/1 /dev/stdout
ln -sfn /proc/self/fd/2 /dev/stderr

case $vm_cgroup in
v1) mount_v1 ;;
hybrid)
    mount_v1
    mkdir /sys/fs/cgroup/unified
    mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified
    ;;
*)
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
        echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control
    done
    ;;
esac

mount --make-rshared /
ip link set lo up
hostname vm
exec /usr/local/lib/vm/session

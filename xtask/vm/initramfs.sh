#!/bin/sh
# The VM's first program: reaches the disk, gives this boot its runtime and scripts, and hands over to the real init.
# The choices (vm_init, vm_runtime…) come from the kernel command line: what the kernel does not know, it puts into
# our environment.

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r module; do
    insmod "/module/$module" || echo "vm: cannot load $module"
done </module/order

if [ -n "$vm_probe" ]; then
    # All that was asked is whether this accelerator brings a kernel so far.
    echo "vm: the kernel runs"
    poweroff -f
fi

# The disk is found asynchronously; 30 s is far more than the slowest emulation takes.
tries=0
until [ -b /dev/vda ]; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || { echo "vm: there is no disk" && poweroff -f; }
    sleep 0.05
done
mount -t ext4 /dev/vda /root || { echo "vm: cannot mount the disk" && poweroff -f; }

# Hard links, so that processes of the chosen runtime have the paths that they have on a real node.
mkdir -p /root/usr/lib/cni
rm -f /root/usr/lib/cni/*
ln -f "/root/opt/$vm_runtime"/usr/bin/* /root/usr/bin/
ln -f "/root/opt/$vm_runtime"/usr/sbin/* /root/usr/sbin/
ln -f "/root/opt/$vm_runtime"/usr/lib/cni/* /root/usr/lib/cni/
cp -a /files/. /root/
case $vm_runtime in
containerd-1.*) ln -sf config-v2.toml /root/etc/containerd/config.toml ;;
*) ln -sf config-v3.toml /root/etc/containerd/config.toml ;;
esac

mount --move /proc /root/proc
mount --move /sys /root/sys
mount --move /dev /root/dev
case $vm_init in
systemd) exec switch_root /root /usr/lib/systemd/systemd ;;
*) exec switch_root /root /usr/local/lib/vm/quick-init ;;
esac

# The init container of a CNI plugin's own pod fails at each start, so no pod gets a network.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of kube-flannel-ds-x2x7q on-host
2s    container install-cni in a starts
3s    plugin says of kube-flannel-ds-x2x7q cp: cannot create regular file '/etc/cni/net.d/10-flannel.conflist': Read-only file system
3s    container install-cni in a exits 1
14s   container install-cni in a starts
15s   container install-cni in a exits 1
36s   container install-cni in a starts
37s   container install-cni in a exits 1
78s   container install-cni in a starts
79s   plugin says of kube-flannel-ds-x2x7q cp: cannot create regular file '/etc/cni/net.d/10-flannel.conflist': Read-only file system
79s   container install-cni in a exits 1
3m    end
expect confirmed daemon_failing/1 install-cni x3 kube-flannel-ds-x2x7q since 2s says cp: cannot create regular file '/etc/cni/net.d/10-flannel.conflist': Read-only file system

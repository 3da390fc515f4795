# An upgrade of the package of plugins took flannel's away. No pod has started since.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
60s   plugin flannel missing
61s   configuration read
5m    end
expect confirmed node_network_unready/plugin_missing warning /etc/cni/net.d/10-podnet.conflist flannel x0 since 61s

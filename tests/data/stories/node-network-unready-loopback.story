# The executable of loopback, which containerd calls for each sandbox beside the configured plugins, is missing.
0s    runtime starts
0s    kubelet starts
1s    plugin loopback missing
1s    pod web-0
2s    sandbox a of web-0 begins
2s    add a podnet 10.88.0.2 stops
3m    end
expect confirmed node_network_unready/plugin_missing critical /etc/cni/net.d/10-podnet.conflist loopback x1
expect confirmed stuck_start/network plugin_not_called portmap web-0 a since 2s

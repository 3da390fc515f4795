# An upgrade took the executable of the second plugin away. The runtime finds it missing only when a pod starts.
0s    runtime starts
0s    kubelet starts
1s    plugin portmap missing
1s    pod web-0
2s    sandbox a of web-0 begins
2s    add a podnet 10.88.0.2 stops
3m    end
expect confirmed node_network_unready/plugin_missing critical /etc/cni/net.d/10-podnet.conflist portmap x1
expect confirmed stuck_start/network plugin_not_called portmap web-0 a since 2s
expect incident node_network_unready .stuck_start

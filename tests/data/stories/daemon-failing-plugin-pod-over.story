# A plugin's container fails three times, and then runs.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of calico-node-x2x7q on-host
2s    container calico-node in a starts
3s    container calico-node in a exits 1
14s   container calico-node in a starts
15s   container calico-node in a exits 1
36s   container calico-node in a starts
37s   container calico-node in a exits 1
78s   container calico-node in a starts
79s   container calico-node in a exits 1
120s  container calico-node in a starts
9m    end
expect closed daemon_failing/1 calico-node x4 calico-node-x2x7q since 2s

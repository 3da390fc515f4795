# A program that exits with -1, as klog's Fatal does, has the exit code 255 and no signal.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of antrea-agent-x2x7q on-host
2s    container antrea-agent in a starts
3s    container antrea-agent in a exits 255
14s   container antrea-agent in a starts
15s   plugin says of antrea-agent-x2x7q error getting K8s client config
15s   container antrea-agent in a exits 255
36s   container antrea-agent in a starts
37s   container antrea-agent in a exits 255
3m    end
expect confirmed daemon_failing/255 antrea-agent x3 antrea-agent-x2x7q since 2s says error getting K8s client config

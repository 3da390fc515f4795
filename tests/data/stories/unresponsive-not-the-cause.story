# The start was stuck for minutes before the runtime hung.
0s    runtime starts
0s    kubelet starts
1s    runtime is followed
5s    sandbox a of web-0 on podnet 10.88.0.2
6s    container main in a starts
20s   pod web-1
300s  runtime hangs
10m   end
expect confirmed runtime_unresponsive/stopped containerd x1 since 300s
expect confirmed stuck_start/sandbox since 20s

# The runtime hangs soon after its start. It had given its list, so it had read what it had before.
0s    runtime starts
0s    kubelet starts
1s    runtime is followed
5s    sandbox a of web-0 on podnet 10.88.0.2
6s    container main in a starts
20s   runtime hangs
100s  end
expect confirmed runtime_unresponsive/stopped containerd x0 since 20s

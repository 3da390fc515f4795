# Another runtime starts after this one has hung: that says nothing about this one.
0s    runtime starts
0s    kubelet starts
1s    runtime is followed
5s    sandbox a of web-0 on podnet 10.88.0.2
6s    container main in a starts
200s  runtime hangs
205s  second containerd starts
280s  end
expect confirmed runtime_unresponsive x0 since 200s

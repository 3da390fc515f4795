# DEL succeeds, and the runtime cannot remove the file of the network namespace.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
10s   kill pause of a by runtime
11s   del a
9m    end
expect confirmed stuck_stop/unmount web-0 a

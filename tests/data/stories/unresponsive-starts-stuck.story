# Pods wait for a runtime that answers nothing until their starts are stuck.
0s    runtime starts
0s    kubelet starts
1s    runtime is followed
5s    sandbox a of web-0 on podnet 10.88.0.2
6s    container main in a starts
200s  runtime hangs
210s  pod web-1
215s  pod web-2
12m   end
expect confirmed runtime_unresponsive/stopped containerd x2 since 200s
expect confirmed stuck_start/sandbox since 210s
expect confirmed stuck_start/sandbox since 215s
expect incident runtime_unresponsive .stuck_start .stuck_start

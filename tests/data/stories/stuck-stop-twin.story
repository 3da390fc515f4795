# A node drain. DEL waits for a minute, or fails at first. Completed pods stay on record.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
1s    sandbox b of web-1 on podnet 10.88.0.3
1s    sandbox c of web-2 on podnet 10.88.0.4
60s   kill pause of a by runtime
60s   stop b del-fails
60s   stop c
100s  del b del-fails
2m    stop a
2m    stop b
20m   end
expect closed cni_failing/del bridge x2 web-1 b since 60s

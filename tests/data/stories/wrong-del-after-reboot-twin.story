# A runtime names the namespace by the pid of pause, and after a reboot it cleans up without a namespace.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 before boot
2s    sandbox b of web-1 on podnet 10.88.0.3
10s   del a
11s   forget a
20s   del b podnet in process of b
21s   free 10.88.0.3
21s   stop b
22s   remove b
9m    end
expect nothing

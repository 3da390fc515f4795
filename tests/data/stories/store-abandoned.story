# Another network plugin was installed, and the store of the one before is still there.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    sandbox b of web-1 on podnet 10.88.0.3
9s    stop a no-del
9s    stop b no-del
10s   remove a no-del
10s   remove b no-del
11s   network podnet unconfigured
20s   agent starts
9m    end
expect confirmed abandoned_store podnet x2

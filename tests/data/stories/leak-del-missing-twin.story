# The same, and the runtime still has the sandbox on record: a DEL is to come, so the address is not leaked yet.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
9s    stop a no-del
10s   pod web-0 goes
9m    end
expect confirmed stuck_stop/del web-0 a since 9s

# The same under the eyes of the agent, which saw that no DEL was called: what leaked stays told.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    sandbox b of web-1 on podnet 10.88.0.3
9s    stop a no-del
9s    stop b no-del
10s   remove a no-del
10s   remove b no-del
5m    network podnet unconfigured
9m    end
expect confirmed leaked_address/del_missing 10.88.0.2 web-0 a
expect confirmed leaked_address/del_missing 10.88.0.3 web-1 b

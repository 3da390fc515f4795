# The same under the eyes of the agent: what was told as leaks is one finding from then on.
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
expect closed leaked_address/del_missing 10.88.0.2 web-0 a
expect closed leaked_address/del_missing 10.88.0.3 web-1 b
expect confirmed abandoned_store podnet x2

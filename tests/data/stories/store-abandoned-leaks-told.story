# A leak of before the agent was confirmed, and then the network is renamed. It stays told.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
9s    stop a no-del
10s   remove a no-del
20s   agent starts
5m    network podnet unconfigured
9m    end
expect confirmed leaked_address/stale_record 10.88.0.2

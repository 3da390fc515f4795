# The agent starts when the sandbox is over: only the runtime's record and the file show it.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
5s    cache of a torn
60s   kill pause of a by runtime
3m    agent starts
9m    end
expect confirmed stuck_stop/del undecodable a
expect confirmed blind_spot CniCache

# A container of a later sandbox, whose files cannot be read, did not run in the sandbox that was over before.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of job-1 on podnet 10.88.0.2
2s    container main in a starts
3s    container main in a exits 0
4s    stop a
5s    sandbox b of job-1 on podnet 10.88.0.3
30s   stop b
40s   unreadable
50s   sandbox c of job-1 on podnet 10.88.0.4
60s   container main in c starts
5m    container main in c exits 0
8m    end
expect confirmed duplicate_sandbox/after_completion x1 job-1 a b since 5s

# Two told apart, and two more a while later: when the first is over, those that are left do not become one.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of job-1 on podnet 10.88.0.2
1s    sandbox b of job-2 on podnet 10.88.0.3
1s    sandbox c of job-3 on podnet 10.88.0.4
1s    sandbox d of job-4 on podnet 10.88.0.5
2s    container main in a starts
2s    container main in b starts
2s    container main in c starts
2s    container main in d starts
3s    container main in a exits 0
3s    container main in b exits 0
3s    container main in c exits 0
3s    container main in d exits 0
4s    stop a
4s    stop b
4s    stop c
4s    stop d
10s   sandbox e of job-1 on podnet 10.88.0.6
60s   sandbox f of job-2 on podnet 10.88.0.7
80s   sandbox g of job-3 on podnet 10.88.0.8
110s  sandbox h of job-4 on podnet 10.88.0.9
3m    stop e
20m   end
expect closed duplicate_sandbox/after_completion x1 job-1 a e since 10s
expect candidate duplicate_sandbox/after_completion x1 job-2 b f since 60s
expect candidate duplicate_sandbox/after_completion x1 job-3 c g since 80s
expect candidate duplicate_sandbox/after_completion x1 job-4 d h since 110s

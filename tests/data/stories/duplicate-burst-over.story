# A burst is over as one, ten minutes after its last sandbox, and none of it is told again.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of job-1 on podnet 10.88.0.2
1s    sandbox b of job-2 on podnet 10.88.0.3
1s    sandbox c of job-3 on podnet 10.88.0.4
2s    container main in a starts
2s    container main in b starts
2s    container main in c starts
3s    container main in a exits 0
3s    container main in b exits 0
3s    container main in c exits 0
4s    stop a
4s    stop b
4s    stop c
5s    sandbox d of job-1 on podnet 10.88.0.5
6s    sandbox e of job-2 on podnet 10.88.0.6
7s    sandbox f of job-3 on podnet 10.88.0.7
40s   stop d
2m    stop e
4m    stop f
5m    remove a
5m    remove b
5m    remove c
5m    remove d
5m    remove e
5m    remove f
60m   end
expect closed duplicate_sandbox/after_completion x3 since 5s

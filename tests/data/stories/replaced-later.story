# The sandboxes are replaced long after the restart.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
3s    sandbox b of web-1 on podnet 10.88.0.3
4s    container main in b starts
5s    runtime dies
6s    runtime starts
185s   container main in a is stopped
186s   stop a
187s   sandbox c of web-0 on podnet 10.88.0.4
188s   container main in c starts
189s   stop b
190s   sandbox d of web-1 on podnet 10.88.0.5
191s   container main in d starts
192s   remove a
193s   remove b
9m    end
expect nothing

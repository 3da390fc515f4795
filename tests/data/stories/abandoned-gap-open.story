# Records that are lost later do not close the finding.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
3s    container main in a exits 1
7m    lose 5
430s  end
expect confirmed abandoned_sandbox main web-0 a since 3s
expect blind_spot

# A crash loop in its longest back-off: five minutes and what the kubelet needs to notice.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
3s    container main in a exits 1
330s  container main in a starts
331s  container main in a exits 1
660s  container main in a starts
661s  container main in a exits 1
16m   end
expect nothing

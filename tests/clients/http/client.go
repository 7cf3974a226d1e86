// Go's HTTP client: `go run client.go URL`.
package main
import ("bytes";"fmt";"io";"net/http";"os";"sync")
func main(){ u:=os.Args[1]; var wg sync.WaitGroup; fail:=false
 for i:=0;i<200;i++ { wg.Add(1); go func(i int){ defer wg.Done(); p:="/echo"; if i%2==0 {p="/chunked"}; r,e:=http.Get(u+p); if e!=nil||r.StatusCode!=200 {fmt.Println(e,r); fail=true; return}; io.Copy(io.Discard,r.Body); r.Body.Close() }(i) }
 wg.Wait()
 r,e:=http.Post(u+"/x","a/b",io.MultiReader(bytes.NewReader(make([]byte,1000000)),bytes.NewReader(make([]byte,5)))); if e!=nil {fmt.Println(e); os.Exit(1)}
 b,_:=io.ReadAll(r.Body); if !bytes.HasSuffix(b,[]byte("1000005")) {fmt.Println(string(b)); os.Exit(1)}
 c:=&http.Client{Transport:&http.Transport{DisableKeepAlives:true}}; for i:=0;i<20;i++ { r,e:=c.Get(u+"/echo"); if e!=nil||r.StatusCode!=200 {fmt.Println(e); os.Exit(1)}; r.Body.Close() }
 if fail {os.Exit(1)} }

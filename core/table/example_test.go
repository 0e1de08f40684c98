package table_test

import (
	"fmt"
	"log"
	"os"

	"github.com/kpidd/kpidd/core/table"
)

// Any process can read the table; no request goes to the daemon.
func ExampleOpen() {
	r, err := table.Open(table.ReaderDirs(os.Getuid())...)
	if err != nil {
		log.Print(err) // table.ErrNoDaemon: read /proc
		return
	}
	defer r.Close()
	if _, err := r.Fresh(); err != nil {
		log.Print(err)
	}
	if h, ok, _ := r.ByPID(uint32(os.Getpid())); ok {
		fmt.Printf("%d %q started at tick %d\n", h.TID, h.Name(), h.StartTicks)
	}
}

// A buffer that is used again makes listing free of allocations.
func ExampleReader_AppendLeaders() {
	r, err := table.Open(table.ReaderDirs(os.Getuid())...)
	if err != nil {
		log.Print(err)
		return
	}
	defer r.Close()
	var processes []table.Hot
	for range 10 {
		var unstable int
		processes, unstable = r.AppendLeaders(processes[:0])
		fmt.Println(len(processes), "processes,", unstable, "being written")
	}
}

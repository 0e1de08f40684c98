package live

import (
	"fmt"
	"strings"
)

// Opener opens one kind of source.
type Opener struct {
	Name string
	Open func() (Source, error)
}

// Refusal is why a source could not be had.
type Refusal struct {
	Name string
	Err  error
}

// Choose opens the first of openers, which come best first, that really opens;
// with a name, only that one. It returns what refused before it. The error names
// the known sources if name is not among them, or all refusals if none opened.
func Choose(openers []Opener, name string) (Source, []Refusal, error) {
	var refused []Refusal
	var names []string
	for _, o := range openers {
		names = append(names, o.Name)
		if name != "" && name != o.Name {
			continue
		}
		src, err := o.Open()
		if err == nil {
			return src, refused, nil
		}
		refused = append(refused, Refusal{o.Name, err})
	}
	if len(refused) == 0 {
		return nil, nil, fmt.Errorf("%w %q; there are: %s", ErrUnknownSource, name, strings.Join(names, ", "))
	}
	var why []string
	for _, r := range refused {
		why = append(why, r.Err.Error())
	}
	return nil, refused, fmt.Errorf("%w: %s", ErrNoSource, strings.Join(why, "; "))
}

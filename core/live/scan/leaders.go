package scan

// Leaders visits every thread group leader and no other thread; see Scan.
func (s *Scanner) Leaders(visit func(t *Task)) (Stats, error) {
	s.leadersOnly = true
	defer func() { s.leadersOnly = false }()
	return s.Scan(visit, nil)
}

// Package setup makes an installation of the relay and checks one. It knows
// neither flags nor exit statuses, and it shows no secret: what it reports may
// be printed as it is.
package setup

// csr_judge says what Go's own parser, which the cluster's signers use, sees in certificate requests.
//
// `csr_judge judge` reads one request a line, PEM in base64, and answers each with a line of JSON.
// `csr_judge make HOST SHORT ADDRESS` writes requests as a kubelet of that node makes them: a line for each, with
// `client` or `serving` and the PEM in base64.
package main

import (
	"bufio"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
)

type seen struct {
	Error      string   `json:"error"`
	CommonName string   `json:"common_name"`
	Groups     []string `json:"groups"`
	// Parts of the subject, these two included.
	Parts int      `json:"parts"`
	Names []string `json:"names"`
	// Raw bytes: an IPv4 address mapped into IPv6 is not that IPv4 address.
	Addresses [][]int `json:"addresses"`
	// Of the alternative names those that are neither.
	Others     int      `json:"others"`
	Extensions []string `json:"extensions"`
}

// parse is ParseCSR (kubernetes/kubernetes: pkg/apis/certificates/v1/helpers.go), and then the check of the signature
// (pkg/apis/certificates/validation/validation.go).
func parse(text []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	return request, request.CheckSignature()
}

func look(text []byte) seen {
	request, err := parse(text)
	if err != nil {
		return seen{Error: err.Error()}
	}
	found := seen{
		CommonName: request.Subject.CommonName,
		Groups:     request.Subject.Organization,
		Parts:      len(request.Subject.Names),
		Names:      request.DNSNames,
		Others:     len(request.EmailAddresses) + len(request.URIs),
	}
	for _, address := range request.IPAddresses {
		numbers := []int{}
		for _, octet := range address {
			numbers = append(numbers, int(octet))
		}
		found.Addresses = append(found.Addresses, numbers)
	}
	for _, extension := range request.Extensions {
		found.Extensions = append(found.Extensions, extension.Id.String())
		var all []asn1.RawValue
		if extension.Id.String() != "2.5.29.17" {
			continue
		}
		if rest, err := asn1.Unmarshal(extension.Value, &all); err != nil || len(rest) != 0 {
			found.Others++
		} else {
			found.Others += len(all) - len(request.DNSNames) - len(request.IPAddresses)
		}
	}
	return found
}

func judge() error {
	lines := bufio.NewReader(os.Stdin)
	out := bufio.NewWriter(os.Stdout)
	answers := json.NewEncoder(out)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return out.Flush()
		}
		text, err := base64.StdEncoding.DecodeString(line[:len(line)-1])
		if err != nil {
			return err
		}
		if err := answers.Encode(look(text)); err != nil {
			return err
		}
	}
}

// write is MakeCSRFromTemplate (kubernetes/kubernetes: staging/src/k8s.io/client-go/util/cert/csr.go).
func write(kind string, key crypto.Signer, template x509.CertificateRequest) error {
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	fmt.Println(kind, base64.StdEncoding.EncodeToString(text))
	return nil
}

func create(host, short, address string) error {
	var keys []crypto.Signer
	for _, curve := range []elliptic.Curve{elliptic.P256(), elliptic.P384()} {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			return err
		}
		keys = append(keys, key)
	}
	for _, bits := range []int{2048, 4096} {
		key, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			return err
		}
		keys = append(keys, key)
	}
	ip := net.ParseIP(address)
	subject := pkix.Name{CommonName: "system:node:" + host, Organization: []string{"system:nodes"}}
	for _, key := range keys {
		algorithm := x509.UnknownSignatureAlgorithm
		if key, ok := key.(*rsa.PrivateKey); ok && key.N.BitLen() >= 4096 {
			algorithm = x509.SHA512WithRSA
		}
		base := x509.CertificateRequest{Subject: subject, SignatureAlgorithm: algorithm}
		if err := write("client", key, base); err != nil {
			return err
		}
		for _, names := range [][]string{{}, {host}, {short}, {host, short}, {short, host}} {
			for _, ips := range [][]net.IP{{}, {ip}, {ip.To4()}} {
				if len(names)+len(ips) == 0 {
					continue
				}
				base.DNSNames, base.IPAddresses = names, ips
				if err := write("serving", key, base); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func main() {
	err := errors.New("csr_judge judge | make HOST SHORT ADDRESS")
	if len(os.Args) == 2 && os.Args[1] == "judge" {
		err = judge()
	} else if len(os.Args) == 5 && os.Args[1] == "make" {
		err = create(os.Args[2], os.Args[3], os.Args[4])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "csr_judge:", err)
		os.Exit(1)
	}
}

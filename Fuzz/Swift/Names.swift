@testable import Caching
@testable import Codec
@testable import Fetch
@testable import Jobs

func fuzzURL(_ bytes: [UInt8]) {
  guard let url = SourceURL(text(bytes)) else { return }
  // Reading the written URL again must give the same URL.
  let again = SourceURL(url.string)
  expect(again == url, "\(url.string) is read as \(again?.string ?? "nothing")")
  expect(url.string.utf8.allSatisfy { (0x21...0x7E).contains($0) || $0 >= 0x80 }, "no spaces")
  expect((1...65_535).contains(url.port), "a port")
  expect(url.pathAndQuery.isEmpty || url.pathAndQuery.hasPrefix("/"), "a path")
  // libcurl, which connects, must see the same host and port.
  if let parts = CurlURL.parts(url.string), url.host.utf8.allSatisfy({ $0 < 0x80 }),
    !url.host.contains("%")
  {
    expect(parts.port ?? url.port == url.port, "libcurl's port of \(url.string): \(parts)")
    if let mine = HostName(url.host), let its = HostName(parts.host) {
      expect(mine == its, "libcurl's host of \(url.string): \(parts.host)")
    }
  }
}

func fuzzHost(_ bytes: [UInt8]) {
  guard let host = HostName(text(bytes)) else { return }
  expect(HostName(host.text) == host, "\(host.text) is another host")
}

func fuzzAddress(_ bytes: [UInt8]) {
  let text = text(bytes)
  if let address = IPAddress(text) {
    expect(IPAddress(address.description) == address, "\(address)")
    let objection = AddressPolicy().objection(to: address)
    // A mapped address must be judged like the address that it maps.
    if case .v4 = address.family, let mapped = IPAddress("::ffff:\(address)") {
      expect((AddressPolicy().objection(to: mapped) == nil) <= (objection == nil), "\(mapped)")
    }
  }
  if let network = CIDR(text) { expect(CIDR(network.description) == network, "\(network)") }
}

private func <= (one: Bool, other: Bool) -> Bool { !one || other }

func fuzzCache(_ bytes: [UInt8]) {
  let fields = text(bytes).split(separator: "\n").map { line in
    let parts = line.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
    return Field(
      name: parts.count > 1 ? String(parts[0]) : "Cache-Control", value: String(parts.last ?? ""))
  }
  let control = CacheControl(fields)
  for directive in CacheControl.Directive.allCases {
    if let seconds = control.seconds(directive) { expect(seconds >= 0, "\(seconds)") }
    _ = (control.has(directive), control.fieldNames(directive), control.concernsAll(directive))
  }
  for field in Vary(fields).selecting(of: fields) {
    expect(SelectingField(name: field.name, of: fields) == field, "\(field.name) again")
  }
}

func fuzzDate(_ bytes: [UInt8]) {
  let now: Int64 = 1_800_000_000_000
  guard let date = HTTPDate(text(bytes), now: now) else { return }
  expect(date.milliseconds >= 0, "a time since 1970")
  expect(HTTPDate(date.description, now: now) == date, "\(date)")
}

func fuzzEXIF(_ bytes: [UInt8]) {
  bytes.withUnsafeBufferPointer { block in
    if let orientation = EXIFOrientation.read(block) {
      expect((1...8).contains(orientation), "\(orientation)")
    }
  }
}

import Caching
import Testing

@Suite("Cache-Control")
struct CacheControlTests {
  private func control(_ lines: String...) -> CacheControl {
    CacheControl(lines.map { Field(name: "Cache-Control", value: $0) })
  }

  @Test(
    "a number of seconds is read in all valid spellings",
    arguments: [
      ("max-age=3600", 3600), ("MaX-aGe=3600", 3600), ("max-age=003600", 3600),
      ("max-age=\"3600\"", 3600), ("max-age=\"36\\00\"", 3600), ("max-age=0", 0),
      ("foobar, max-age=3600", 3600), (" ,\t max-age=3600 ,", 3600), ("a=\"b, c\",max-age=5", 5),
    ])
  func seconds(text: String, seconds: Int) {
    #expect(control(text).seconds(.maxAge) == seconds)
  }

  @Test(
    "more than 2^31 seconds count as 2^31",
    arguments: [
      ("2147483647", 2_147_483_647), ("2147483648", 2_147_483_648), ("2147483649", 2_147_483_648),
      ("99999999999", 2_147_483_648), (String(repeating: "9", count: 400), 2_147_483_648),
    ])
  func saturation(digits: String, seconds: Int) {
    #expect(control("max-age=\(digits)").seconds(.maxAge) == seconds)
  }

  @Test(
    "an argument that is not a number counts as 0 seconds",
    arguments: [
      "max-age", "max-age=", "max-age=-3600", "max-age='3600'", "max-age=3600.0", "max-age=3600.5",
      "max-age=a3600", "max-age=3600a", "max-age =3600", "max-age= 3600", "max-age=\"", "max-age=٣",
      "max-age=\"3600", "max-age=+1", "max-age=1 2", "max-age=1;x=2",
    ])
  func malformed(text: String) {
    #expect(control(text).seconds(.maxAge) == 0)
  }

  @Test("an absent directive has no seconds")
  func absent() {
    #expect(control("max-ages=1, xmax-age=2, \"max-age=3\"").seconds(.maxAge) == nil)
    #expect(CacheControl([]).seconds(.maxAge) == nil)
    #expect(!control("").has(.noStore))
  }

  @Test("the first of several equal directives is used, on one line or on several")
  func duplicates() {
    #expect(control("max-age=1800, max-age=1").seconds(.maxAge) == 1800)
    #expect(control("max-age=1800", "max-age=1").seconds(.maxAge) == 1800)
    #expect(control("max-age=1, max-age=1800").seconds(.maxAge) == 1)
    #expect(control("max-age=x, max-age=1800").seconds(.maxAge) == 0)
  }

  @Test("the content of a quoted string is not a directive")
  func quoted() {
    #expect(control("extension=\"max-age=3600\", max-age=1").seconds(.maxAge) == 1)
    #expect(control("max-age=1, extension=\"a, max-age=3600\"").seconds(.maxAge) == 1)
    #expect(control("extension=\"a\\\", max-age=3600\", max-age=1").seconds(.maxAge) == 1)
    #expect(!control("extension=\"no-store, private\"").has(.noStore))
  }

  @Test("an unclosed quote does not hide the directives after it")
  func unclosed() {
    let control = control("extension=\"abc, no-store", "private=\"a, max-age=5")
    #expect(control.has(.noStore))
    #expect(control.concernsAll(.private))
    #expect(control.seconds(.maxAge) == 5)
  }

  @Test("no-store forbids storing with any argument, case and spacing")
  func tolerant() {
    for text in ["no-store", "No-StOrE", "no-store=1", "no-store =x", "a,no-store\t,b"] {
      #expect(control(text).has(.noStore), "\(text)")
    }
  }

  @Test("a list of fields limits no-cache and private, unless they also occur without one")
  func listed() {
    #expect(control("no-cache=\"A, b ,\"").fieldNames(.noCache) == ["a", "b"])
    #expect(!control("no-cache=\"a\", private=\"b\"").concernsAll(.noCache))
    #expect(control("no-cache=\"a\", no-cache").concernsAll(.noCache))
    #expect(control("no-cache=\"a\", no-cache=\"b\"").fieldNames(.noCache) == ["a", "b"])
    for text in ["no-cache", "no-cache=\"\"", "no-cache=\" , \"", "no-cache=a", "no-cache = \"a\""]
    {
      #expect(control(text).concernsAll(.noCache), "\(text)")
    }
  }

  @Test("many quotes are parsed in linear time")
  func hostile() {
    let text = String(repeating: "\"\\", count: 100_000)
    #expect(!control(text).has(.noStore))
    #expect(control(String(repeating: "a=\",", count: 50_000) + "no-store").has(.noStore) == true)
  }
}

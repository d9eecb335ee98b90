// Looks at pages in a headless Chromium, as check.py tells it: an array of
// visits on standard input, an array of what was found on standard output.
//
//     node browser.mjs FOLDER CHROMIUM
//
// FOLDER has node_modules with playwright-core and axe-core.  A visit has
//
//     url, width, scheme   of the page, the window, and light or dark
//     until                a function's source: the page is looked at when
//                          its answer is true, or after a minute
//     then                 source, optional: run once, before the look
//     look                 source: its answer is in what was found
//     axe                  whether contrast is looked at, too
//     shot                 a file for a screenshot, optional
//     upto                 a selector: the screenshot ends below it
//     offline              source, optional: afterwards the network is cut,
//                          and this must become true
//     bare                 the browser runs no script, and is not waited for

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const PATIENCE = 60000;
const [, , folder, executablePath] = process.argv;
const require = createRequire(join(folder, "node_modules", "x.js"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

// Whether a condition came true.  The page's policy about scripts lets the
// debugger run this, but not Playwright's own way to wait.
async function comes(page, source) {
  for (const end = Date.now() + PATIENCE; Date.now() < end;) {
    if (await page.evaluate(`(${source})()`)) return true;
    await page.waitForTimeout(200);
  }
  return false;
}

async function visit(browser, one) {
  const context = await browser.newContext({
    viewport: { width: one.width, height: 1000 }, colorScheme: one.scheme,
    javaScriptEnabled: !one.bare, locale: "en-GB",
    deviceScaleFactor: one.width < 600 ? 2 : 1 });
  const page = await context.newPage();
  const errors = [];
  page.on("console", said => {
    if (["error", "warning"].includes(said.type())) errors.push(said.text());
  });
  page.on("pageerror", err => errors.push(String(err)));
  page.on("requestfailed", asked => errors.push(`${asked.url()} failed`));
  const found = { errors };
  try {
    await page.goto(one.url);
    found.waited = true;
    if (one.until) found.waited = await comes(page, one.until);
    if (one.offline) {
      await context.setOffline(true);
      found.waited = await comes(page, one.offline);
      errors.length = 0;        // the browser tells that the network is cut
    }
    if (one.then) await page.evaluate(`(${one.then})()`);
    if (one.bare) {
      found.link = await page.locator("noscript a").getAttribute("href");
    }
    found.path = new URL(page.url()).pathname + new URL(page.url()).search;
    found.overflow = one.bare ? [] : await page.evaluate(() => {
      const room = document.documentElement.clientWidth;
      const wide = [...document.querySelectorAll("body *")].filter(e =>
        e.getBoundingClientRect().right > room + 1
        && e.getClientRects().length && !e.closest("svg"));
      return document.documentElement.scrollWidth > room
        ? ["page", ...wide.slice(0, 5).map(e => `${e.tagName} ${
          e.id || e.className}`)] : [];
    });
    found.look = one.look ? await page.evaluate(`(${one.look})()`) : null;
    if (one.axe) {
      await page.evaluate(axe);
      found.axe = await page.evaluate(async () => (await globalThis.axe.run(
        { runOnly: ["wcag2a", "wcag2aa"] })).violations
        .flatMap(rule => rule.nodes.slice(0, 4).map(node =>
          `${rule.id}: ${node.target.join(" ")}: ${
            node.failureSummary.replaceAll("\n", " ")}`)));
    }
    if (one.shot) {
      const height = one.upto && await page.evaluate(selector => Math.ceil(
        document.querySelector(selector).getBoundingClientRect().bottom
        + scrollY) + 28, one.upto);
      await page.screenshot({ path: one.shot, fullPage: true,
        ...(height ? { clip: { x: 0, y: 0, width: one.width, height } }
                   : {}) });
    }
  } catch (err) {
    errors.push(String(err));
  }
  await context.close();
  return found;
}

const visits = JSON.parse(readFileSync(0, "utf8"));
const browser = await chromium.launch({ executablePath, headless: true,
  args: ["--no-sandbox", "--disable-gpu"] });
const found = [];
for (const one of visits) found.push(await visit(browser, one));
await browser.close();
process.stdout.write(JSON.stringify(found));

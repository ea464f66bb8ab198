// Runs the script of a report's page without a browser, on a document that has what the script uses, and prints the
// elements that it makes. Usage: node page_under_node.js PAGE.html [#FRAGMENT]
"use strict";
const fs = require("fs");

class Element {
  constructor(tag) {
    this.tag = tag;
    this.attributes = new Map();
    this.children = [];
    this.parentNode = null;
  }
  setAttribute(key, value) { this.attributes.set(key, String(value)); }
  removeAttribute(key) { this.attributes.delete(key); }
  append(...children) {
    for (const child of children) {
      if (child === undefined || child === null) throw new Error("appends nothing to " + this.tag);
      if (child instanceof Element) child.parentNode = this;
      this.children.push(child);
    }
  }
  replaceChildren(...children) { this.children = []; this.append(...children); }
  addEventListener() {}
  get lastChild() { return this.children[this.children.length - 1]; }
  get lastElementChild() { return this.children.filter((child) => child instanceof Element).pop(); }
  html() {
    const attributes = [...this.attributes].map(([key, value]) => ` ${key}="${value.replaceAll('"', "&quot;")}"`).join("");
    const inside = this.children.map((child) => child instanceof Element ? child.html()
        : String(child).replaceAll("&", "&amp;").replaceAll("<", "&lt;")).join("");
    return `<${this.tag}${attributes}>${inside}</${this.tag}>`;
  }
}

const page = fs.readFileSync(process.argv[2], "utf8");
const script = page.slice(page.indexOf("<script>") + "<script>".length, page.lastIndexOf("</script>"));
const main = new Element("main");
const document = {
  title: "",
  createElement: (tag) => new Element(tag),
  createElementNS: (space, tag) => new Element(tag),
  getElementById: (id) => (id === "main" ? main : null),
};
new Function("document", "location", "addEventListener", script)(document, {hash: process.argv[3] || "", reload: () => {}}, () => {});
console.log(main.html());
